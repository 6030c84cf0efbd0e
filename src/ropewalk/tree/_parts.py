from __future__ import annotations

from ropewalk.tree.nodes import link, linked, links_in, may_hold_links, root_links, unpack_list

__all__ = ["link", "linked", "links_in", "may_hold_links", "root_links", "unpack_list"]
