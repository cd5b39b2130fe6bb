"""A plug-in that cannot be imported."""

raise ValueError("this plug-in is broken")
