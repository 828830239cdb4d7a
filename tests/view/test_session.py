"""The images of a session and their results."""

import pytest

from caloric.runtime import progress
from caloric.view import session
from caloric.view.result import Settings
from encoded_images import encoded_pair


def test_replaced_images_are_kept_until_the_new_ones_have_a_result(viewer):
    viewer.restore_images()
    assert set(viewer.images) == {"a", "b"}  # nothing to restore: unchanged
    computed = viewer.matched(Settings("sift"))
    replaced = viewer.image("a")
    other = session.LoadedImage.of("c.png", encoded_pair()[1])
    viewer.set_image("a", other)
    assert not viewer.has_result(Settings("sift"))
    viewer.restore_images()
    assert viewer.image("a") is replaced
    assert viewer.matched(Settings("sift")) is computed
    viewer.set_image("a", other)
    viewer.matched(Settings("sift"))
    assert all(replaced not in key for key in viewer._results)
    viewer.restore_images()
    assert viewer.image("a") is other


def test_a_cancelled_result_is_not_stored(viewer):
    def cancel(step):
        if "descriptors" in step:
            raise progress.CancellationError

    with progress.observed(cancel), pytest.raises(progress.CancellationError):
        viewer.matched(Settings("sift"))
    assert not viewer.has_result(Settings("sift"))
    assert len(viewer.matched(Settings("sift"))) > 50
