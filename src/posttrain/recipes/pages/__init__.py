"""A page of each method, area, family and setting, as Markdown, from the modules themselves.

The static site and ``posttrain show METHOD --page`` print the same pages. Links are relative to the folder of the page,
as the site has them: ``methods/<area>/<name>.md``, ``methods/<area>/README.md``, ``components/<family>.md``,
``settings.md``.
"""

from posttrain.recipes.pages.components import family_page, settings_page
from posttrain.recipes.pages.methods import area_page, method_page

__all__ = ["area_page", "family_page", "method_page", "settings_page"]
