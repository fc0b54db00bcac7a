"""What every chapter of a report is given, and how it saves what it made."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import xarray as xr

__all__ = ["Context"]


@dataclass(frozen=True)
class Context:
    """Folder to write to, seed, threads, the data folder, the command that is being run, whether to show progress."""

    folder: Path
    seed: int
    threads: int | None
    data_dir: Path | None
    command: str
    progress: bool

    def keep(self, name: str, data: xr.Dataset) -> None:
        """Write a Dataset beside the report, as ``data/NAME.nc``."""
        (self.folder / "data").mkdir(exist_ok=True)
        data.to_netcdf(self.folder / "data" / f"{name}.nc")

    def figure(self, stem: str, figure: Any) -> None:
        """Write a figure as PNG and SVG, as ``figures/STEM``."""
        from meanfield import plots

        (self.folder / "figures").mkdir(exist_ok=True)
        plots.save(figure, self.folder / "figures", stem, self.command)
