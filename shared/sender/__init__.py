"""Sending one HTTP request to a hostile world: a transport of our own, and its face for httpx.

The hot path is `shared.sender.transport`. Only `shared.sender.httpx_face` imports httpx, which a cold start
should not pay for.
"""
