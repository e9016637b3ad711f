"""Campaigns: sequential tests of ideas against a common baseline."""

from paribus.campaign.campaign import (
    Campaign,
    Idea,
    begin,
    end,
    open_campaign,
    try_idea,
)
