from __future__ import annotations

from typing import TYPE_CHECKING

from cluster.images import SmallImage

if TYPE_CHECKING:
    from cluster.boot import Cluster

NAME = "localhost/changing:1"


def test_an_image_that_changed_replaces_the_old_one(cluster: Cluster) -> None:
    """The store has what was asked for last under a name, and knows what it was made from."""
    first, second = (SmallImage(name=NAME, files={"/data": content}) for content in (b"first", b"second"))

    cluster.images.ensure(first)
    cluster.images.ensure(second)

    assert cluster.images.has(NAME, second.key)
    assert not cluster.images.has(NAME, first.key)


def test_an_image_that_is_there_is_not_imported_again(cluster: Cluster) -> None:
    """Later boots cost no import: the same content has the same key."""
    image = SmallImage(name=NAME, files={"/data": b"same"})
    cluster.images.ensure(image)

    cluster.images.ensure(SmallImage(name=NAME, files={"/data": b"same"}))

    assert image.key == SmallImage(name=NAME, files={"/data": b"same"}).key
    assert not (cluster.layout.home / f"{image.key}.tar").exists()
