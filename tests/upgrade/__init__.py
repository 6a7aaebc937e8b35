"""Upgrades: homes and programs of earlier releases beside this one, and this one beside a later one."""
