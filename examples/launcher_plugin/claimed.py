"""Launcher that claims keys of the config (docs/launchers.md)."""

from pydantic import BaseModel

from det_core.interfaces.launcher import Launcher
from det_core.specs import LauncherSpec


class ClaimedEnvironment(BaseModel):
    image: str = "registry.example.com/det:0.1"


class ClaimedKeys(BaseModel):
    environment: ClaimedEnvironment = ClaimedEnvironment()


class ContainerLauncher(Launcher):
    def __init__(self, config, claimed):
        self.image = claimed.environment.image


SPEC = LauncherSpec(name="container", target="det_container:ContainerLauncher", claims="det_container:ClaimedKeys")
