"""A photograph, a warped copy and their matches, for tests of refinement."""

import caloric
import photographs

MOVED = photographs.similarity(1.15, 20, (5, -3), (180, 180))
MOVED[0, 1] += 0.1


def matched_views():
    """Return a photograph, a warped copy, their features and their matches."""
    first = photographs.gray("astronaut", (360, 360))
    second = photographs.warp(first, MOVED)
    a, b = (caloric.extract(image, max_features=600) for image in (first, second))
    return first, second, a, b, caloric.match(a, b)


def frames_of(pair):
    """Return the matched frames (m, 2, 3) of both images."""
    _, _, a, b, matches = pair
    return a.frames.maps[matches.indices[:, 0]], b.frames.maps[matches.indices[:, 1]]
