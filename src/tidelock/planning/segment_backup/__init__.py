"""What Segment Backup costs, and its cheapest configuration (Segment Backup, chapter 4). Pure.

`application` has the symbols of the thesis under plain names, `equations` follows its equations one by one, and
`optimum` finds connectors and block length.
"""

from tidelock.planning.segment_backup.application import (
    Application,
    ApplicationNode,
    BackupConfiguration,
    Delays,
    PriceList,
    Sizes,
    configure,
)
from tidelock.planning.segment_backup.equations import BackupCosts, costs, pending_windows, recovery_delay
from tidelock.planning.segment_backup.optimum import CheapestConfiguration, Unreachable, cheapest

__all__ = [
    "Application",
    "ApplicationNode",
    "BackupConfiguration",
    "BackupCosts",
    "CheapestConfiguration",
    "Delays",
    "PriceList",
    "Sizes",
    "Unreachable",
    "cheapest",
    "configure",
    "costs",
    "pending_windows",
    "recovery_delay",
]
