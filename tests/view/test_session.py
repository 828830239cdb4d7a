"""The images of a session and their results."""

from caloric.view import session
from caloric.view.result import Settings
from pair_of_pictures import pair


def test_results_of_a_replaced_image_are_dropped(showing):
    showing.matched(Settings("sift"))
    assert showing.knows(Settings("sift"))
    before = showing.picture("a")
    showing.put("a", session.LoadedImage.of("c.png", pair()[1]))
    assert not showing.knows(Settings("sift"))
    assert all(before not in key for key in showing._results)
