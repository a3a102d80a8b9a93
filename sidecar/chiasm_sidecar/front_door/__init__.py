"""The OpenAI-style surface: what a client may send, and the bytes it gets back."""
