"use strict";
document.getElementById("app").textContent = "The page of the dashboard is not built yet.";
