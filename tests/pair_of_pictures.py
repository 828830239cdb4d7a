"""Two images of one scene, encoded, and HTTP requests to a server."""

import urllib.error
import urllib.request

import cv2

import photographs


def encoded(image, suffix=".png"):
    return cv2.imencode(suffix, image)[1].tobytes()


def pair():
    image = photographs.color("coffee")[:300, :400, ::-1].copy()
    turned = photographs.warp(image, photographs.similarity(1.1, 12, (5, -8), (200, 150)))
    return encoded(image), encoded(turned)


def ask(address, method="GET", data=None, **headers):
    request = urllib.request.Request(address, data=data, method=method, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, answer.read(), answer.headers
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read(), error.headers
