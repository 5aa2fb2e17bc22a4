"""What can go wrong in the lab, said in one line."""


class LabError(Exception):
    """Wrong input or surroundings, or a server that did not do what it must."""
