import torch

from caloric.gpu import extrema


def test_strongest_has_no_extremum_twice():
    keys = torch.tensor([[5 << 32 | 7, 9 << 32 | 1, 5 << 32 | 7, 0]])
    places = torch.arange(12.0).view(1, 4, 3)
    found = extrema.Peaks(keys, places, torch.tensor([3]))
    kept, strengths = extrema.strongest(found, 3)
    assert (strengths[0, :2] > 0).all()
    assert strengths[0, 2] == 0
    assert kept[0, 0].tolist() == [3.0, 4.0, 5.0]
