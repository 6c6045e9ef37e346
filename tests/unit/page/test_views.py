"""What holds for every view that is registered."""

import re

from spark_app.lake.lake import Lake
from spark_app.page.views import VIEWS
from tests.support.pages import page


def test_every_view_is_served_below_the_same_bar(lake: Lake) -> None:
    links = [(view.path, view.title) for view in VIEWS if view.is_in_bar]
    with page(lake) as running:
        for view in VIEWS:
            answer = running.get(re.sub("{.*?}", "1", view.path), running.token)
            assert answer.status_code == 200, view
            assert f"<title>{view.title} · Protolake</title>" in answer.text
            assert re.findall(r'"href":\s*"(/\w*)"', answer.text)[: len(links)] == [path for path, _ in links]
            assert [title for _, title in links if f'"{title}"' not in answer.text] == []


def test_no_two_views_have_an_address_or_a_title_in_common() -> None:
    for names in ([view.path for view in VIEWS], [view.title for view in VIEWS]):
        assert len(names) == len(set(names))
