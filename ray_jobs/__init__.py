"""Entry points that run inosgm on a Ray cluster; the only package that imports ray."""
