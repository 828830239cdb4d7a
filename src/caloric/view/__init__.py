"""``caloric view``: a local web page that shows the matches of two images.

:mod:`caloric.view.session` computes what is shown and :mod:`caloric.view.server` serves it. The
page in ``static`` is plain JavaScript modules without dependencies.
"""
