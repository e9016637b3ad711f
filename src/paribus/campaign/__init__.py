"""Campaigns: ideas that arrive one after the other, each against the same baseline.

`begin` registers how they are tested, `try_idea` screens and confirms one, `end` opens the sealed
test part once for those that stand. Each idea is a study with a results folder of its own.
"""

from paribus.campaign.card import card, ideas_table, status
from paribus.campaign.record import Campaign, Idea, begin, open_campaign
from paribus.campaign.steps import end, give_up, try_idea

__all__ = [
    "Campaign",
    "Idea",
    "begin",
    "card",
    "end",
    "give_up",
    "ideas_table",
    "open_campaign",
    "status",
    "try_idea",
]
