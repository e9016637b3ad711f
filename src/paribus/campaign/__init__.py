"""Campaigns: a sequence of ideas, each tested against the same baseline."""

from paribus.campaign.campaign import (
    Campaign,
    Idea,
    begin,
    end,
    open_campaign,
    try_idea,
)
