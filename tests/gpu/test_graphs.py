import numpy as np

import caloric
from caloric.gpu import graphs
from torch_device import HERE, photograph


def test_slots_depend_on_the_image_and_not_on_max_features():
    image = photograph(size=(100, 120))
    many = caloric.extract(image, max_features=10**6, contrast=0.04, device=HERE)
    unlimited = caloric.extract(image, max_features=None, device=HERE)
    assert len(many) == len(unlimited) < 1000


def test_a_recorded_graph_is_valid_after_images_of_other_sizes(gpu_images):
    """Tables of 80 other sizes are computed between two replays of a graph."""
    image = gpu_images[0].cpu().numpy()
    first = caloric.extract(image, max_features=100, device="cuda")
    for _ in range(3):
        caloric.extract(image, max_features=100, device="cuda")
    for i in range(80):
        caloric.extract(image[: 60 + i, :90], max_features=50, device="cuda")
    again = caloric.extract(image, max_features=100, device="cuda")
    np.testing.assert_array_equal(first.frames.maps, again.frames.maps)
    graphs.clear()
