"""/metrics, /health, /live and /ready of a node.

    endpoint  starts and stops the server without a delay of the node's start
    server    the server; imported only where quorate.http.listen is set

`quorate.node.server` and tests import these modules.
"""
