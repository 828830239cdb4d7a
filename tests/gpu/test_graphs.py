import caloric
from torch_device import HERE, photograph


def test_slots_follow_the_image_and_not_what_is_asked_for():
    image = photograph(size=(100, 120))
    many = caloric.extract(image, max_features=10**6, contrast=0.04, device=HERE)
    every = caloric.extract(image, max_features=None, device=HERE)
    assert len(many) == len(every) < 1000
