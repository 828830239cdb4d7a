"""Features of two views, with descriptors as bytes, and the map between the views."""

import pytest

import caloric
from brick import views


@pytest.fixture(scope="module")
def pair():
    first, second, change = views()
    return (*caloric.extract([first, second], max_features=600, dtype="uint8"), change)
