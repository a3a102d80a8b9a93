"""Rows of bytes moved by a table: blocks gathered for a tier or scattered from one."""
