"""What the metadata of an Apache Paimon table says, as pure rules: no file is opened here."""
