"""Campaigns: a sequence of ideas, each tested against the same baseline.

`begin` registers the baseline and the rule, `try_idea` screens and confirms an idea, and `end`
opens the sealed test part once for the ideas that were kept.
"""

from paribus.campaign.record import (
    Campaign,
    Idea,
    begin,
    ideas_table,
    open_campaign,
    standing,
    status,
)
from paribus.campaign.steps import end, try_idea
