import torch

from caloric.gpu import extrema


def test_strongest_drops_duplicates():
    keys = torch.tensor([[5 << 32 | 7, 9 << 32 | 1, 5 << 32 | 7, 0]])
    positions = torch.arange(12.0).view(1, 4, 3)
    peaks = extrema.Peaks(keys, positions, torch.tensor([3]))
    strongest, strengths = extrema.strongest(peaks, 3)
    assert (strengths[0, :2] > 0).all()
    assert strengths[0, 2] == 0
    assert strongest[0, 0].tolist() == [3.0, 4.0, 5.0]
