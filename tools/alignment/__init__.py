"""The benchmark of alignment: cases, peers, confidence."""
