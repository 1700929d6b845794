"""Checks of figures by arithmetic: published tables, stored sessions, link peaks."""
