"""A client and a server of the real MCP SDK, each a program of its own, and a tap between them."""
