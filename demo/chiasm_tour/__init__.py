"""The way a newcomer takes: a cluster, the chart, one resource, three answered questions.

Drives only public commands (chiasm_cluster, helm, kubectl, the OpenAI client); knows no part's
inside, so that what it shows is what a user gets.
"""
