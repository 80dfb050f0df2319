"""The topology of a training: its settings, their rules, its devices and its processes.

Its strategies name the engines (:mod:`stagecraft.trainer_module.engines`), which compute steps and
sum gradients.
"""
