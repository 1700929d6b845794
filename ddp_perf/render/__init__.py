"""What every text needs: tables, units and numbers."""
