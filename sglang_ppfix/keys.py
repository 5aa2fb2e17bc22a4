"""SGLang's API keys in a request."""


def bearer(key: str | None) -> dict[str, str]:
    """The header that carries a key; empty without one."""
    return {"Authorization": f"Bearer {key}"} if key else {}
