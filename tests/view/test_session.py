"""The images of a session and their results."""

from caloric.view import session
from caloric.view.result import Settings
from encoded_images import encoded_pair


def test_results_of_a_replaced_image_are_dropped(viewer):
    viewer.matched(Settings("sift"))
    assert viewer.has_result(Settings("sift"))
    replaced = viewer.image("a")
    viewer.set_image("a", session.LoadedImage.of("c.png", encoded_pair()[1]))
    assert not viewer.has_result(Settings("sift"))
    assert all(replaced not in key for key in viewer._results)
