"""Pusher: a blessed model becomes a version that is served, all of it or nothing."""
