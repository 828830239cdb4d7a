"""Write scenes in the layouts of public data sets."""

import cv2
import numpy as np

import photographs

LAYOUTS = {
    "oxford": ("graf", "img{}", "H1to{}p"),
    "hpatches": ("v_graf", "{}", "H_1_{}"),
    "fischer": ("01_graf", "zoom{}", "H_zoom{}.txt"),
}


def write_scene(root, name, suffix=".png"):
    scene, image, matrix = LAYOUTS[name]
    directory = root / scene
    directory.mkdir()
    pixels = photographs.gray("camera", (200, 200))
    for k in range(1, 7):
        view = photographs.similarity(1 + 0.04 * (k - 1), 6 * (k - 1), (0, 0), (100, 100))
        first = name == "fischer" and k == 1
        path = directory / f"{'original' if first else image.format(k)}{suffix}"
        color = cv2.cvtColor(photographs.warp(pixels, view), cv2.COLOR_GRAY2BGR)
        cv2.imwrite(str(path), color)
        if k > 1:
            np.savetxt(directory / matrix.format(k), np.concatenate([view, [[0, 0, 1]]]))
