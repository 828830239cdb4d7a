"""A photograph and a view of it with their matches, for tests of refinement."""

import caloric
import photographs

MOVED = photographs.similarity(1.15, 20, (5, -3), (180, 180))
MOVED[0, 1] += 0.1


def matched_views():
    """A photograph, a view of it, their features, and the matches."""
    first = photographs.gray("astronaut", (360, 360))
    second = photographs.warp(first, MOVED)
    a, b = (caloric.extract(image, max_features=600) for image in (first, second))
    return first, second, a, b, caloric.match(a, b)


def frames_of(pair):
    """The matched frames (m, 2, 3) in both images."""
    _, _, a, b, matches = pair
    return a.frames.maps[matches.indices[:, 0]], b.frames.maps[matches.indices[:, 1]]
