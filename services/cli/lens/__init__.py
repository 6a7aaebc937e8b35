"""``deepclean lens``: questions on what Apache Ozone, Iceberg, Paimon or git have, without a plane."""
