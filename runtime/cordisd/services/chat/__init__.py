"""OpenAI-style chat completions: from a `ModelRequest` to chunks of the log, whatever the server sends.

Out: `adapter` (one attempt, from request to `finish`), `encode` (a request's bytes), `endpoint` (which URL,
which key), `transport` (the HTTP client; loads aiohttp). Back: `sse` (bytes to server-sent events),
`completion` (a body to chunks), `assemble` (completion objects to chunks), `toolcalls` (deltas to calls),
`failures` (what went wrong, in the log's words).
"""
