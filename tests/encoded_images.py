"""Encoded images for the page, and HTTP requests to its server."""

import urllib.error
import urllib.request

import cv2

import photographs


def encode(image, suffix=".png"):
    return cv2.imencode(suffix, image)[1].tobytes()


def encoded_pair():
    """Two PNG files: a photograph, and a rotated and scaled version of it."""
    image = photographs.color("coffee")[:300, :400, ::-1].copy()
    warped = photographs.warp(image, photographs.similarity(1.1, 12, (5, -8), (200, 150)))
    return encode(image), encode(warped)


def request(address, method="GET", data=None, **headers):
    """Status, body and headers of the response."""
    message = urllib.request.Request(address, data=data, method=method, headers=headers)
    try:
        with urllib.request.urlopen(message, timeout=60) as response:
            return response.status, response.read(), response.headers
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read(), error.headers
