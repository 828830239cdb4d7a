"""The papers to cite for a descriptor."""

from caloric.descriptor.recipes import descriptor

_PAPERS = {
    "theory": """@techreport{mobahi2016theory,
  title = {A Theory of Local Matching: {SIFT} and Beyond},
  author = {Mobahi, Hossein and Soatto, Stefano},
  year = {2016}
}""",
    "sift": """@article{lowe2004distinctive,
  title = {Distinctive Image Features from Scale-Invariant Keypoints},
  author = {Lowe, David G.},
  journal = {International Journal of Computer Vision},
  volume = {60}, number = {2}, pages = {91--110}, year = {2004}
}""",
    "dsp": """@inproceedings{dong2015domain,
  title = {Domain-Size Pooling in Local Descriptors: {DSP-SIFT}},
  author = {Dong, Jingming and Soatto, Stefano},
  booktitle = {IEEE Conference on Computer Vision and Pattern Recognition},
  year = {2015}
}""",
    "distribution-field": """@inproceedings{sevilla2012distribution,
  title = {Distribution Fields for Tracking},
  author = {Sevilla-Lara, Laura and Learned-Miller, Erik},
  booktitle = {IEEE Conference on Computer Vision and Pattern Recognition},
  year = {2012}
}""",
}


def cite(name: str = "caloric") -> str:
    """Return the BibTeX entries of the papers that describe a descriptor.

    Parameters
    ----------
    name : str
        One of :func:`caloric.descriptors`.

    Returns
    -------
    str
        The BibTeX entries, starting with the theory.

    Examples
    --------
    >>> import caloric
    >>> print(caloric.cite("heat").splitlines()[0])
    @techreport{mobahi2016theory,
    """
    kernel = descriptor(name).kernel.name
    paper = next(
        (_PAPERS[k] for k in ("sift", "dsp", "distribution-field") if kernel.startswith(k)), ""
    )
    return "\n\n".join(filter(None, (_PAPERS["theory"], paper)))
