"""``caloric view``: a local web page that shows the matches of two images.

:mod:`caloric.view.session` computes the results and :mod:`caloric.view.server` serves them. The
page in ``static`` is made of plain JavaScript modules without dependencies.
"""
