"""From descriptors to matches, and from matches to geometry."""
