"""Parameter servers: variables that some ranks keep, and others pull from and push to.

`messages.py` lists the requests, `client/` sends them, `server/` does them, `storage/` is the
memory of a shard, and `transport/` connects the members.
"""
