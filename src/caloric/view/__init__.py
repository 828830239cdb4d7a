"""``caloric view``: a local page to look at the matches of two images.

:mod:`caloric.view.session` computes what is shown, :mod:`caloric.view.server` serves it, and the
files in ``static`` show it: plain modules of JavaScript, nothing from elsewhere.
"""
