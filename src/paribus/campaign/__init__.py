"""Campaigns: a sequence of ideas, each tested against the same baseline."""

from paribus.campaign.campaign import (
    Campaign,
    Idea,
    begin,
    end,
    ideas_table,
    open_campaign,
    standing,
    status,
    try_idea,
)
