"""Campaigns: many ideas, one after the other, each against the same baseline.

`begin` registers the baseline and the rule, `try_idea` screens and confirms an idea, and `end`
opens the sealed test part once for the ideas that were kept.
"""

from paribus.campaign.card import ideas_table, standing, status
from paribus.campaign.record import Campaign, Idea, begin, open_campaign
from paribus.campaign.steps import end, try_idea
