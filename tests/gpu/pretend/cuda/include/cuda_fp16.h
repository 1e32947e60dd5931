#pragma once
// Built in: language/prelude.h.
